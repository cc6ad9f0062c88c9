"""sentence-transformers: the cached loss runs backward again and again inside a backward hook."""

import random
import tempfile
from pathlib import Path

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss
from sentence_transformers.models import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast, set_seed

set_seed(0)
words = "ant bee cat dog eel fox gnu hen ibis jay kite lynx".split()
pairs = [random.sample(words, 8) for _ in range(48)]
data = Dataset.from_dict(
    {
        "anchor": [" ".join(pair[:4]) for pair in pairs],
        "positive": [" ".join(pair[4:]) for pair in pairs],
    }
)
config = BertConfig(
    vocab_size=len(words) + 5,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
with tempfile.TemporaryDirectory() as folder:
    vocabulary = Path(folder, "vocab.txt")
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(vocabulary)).save_pretrained(folder)
    BertModel(config).save_pretrained(folder)
    model = SentenceTransformer(
        modules=[Transformer(folder, max_seq_length=12), Pooling(16)], device="cpu"
    )
    arguments = SentenceTransformerTrainingArguments(
        folder,
        disable_tqdm=True,
        gradient_accumulation_steps=2,
        logging_strategy="no",
        num_train_epochs=2,
        per_device_train_batch_size=6,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=loss)
    print("final", repr(trainer.train().training_loss))
