"""transformers: Trainer clears through the model, never the optimizer; the last window is short."""

import tempfile

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(0)
words = torch.randint(2, 40, (30, 8))
texts = [{"input_ids": row, "labels": int(row.sum()) % 2} for row in words]
config = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=8,
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        bf16=True,
        disable_tqdm=True,
        gradient_accumulation_steps=3,
        logging_strategy="no",
        max_grad_norm=0.5,
        num_train_epochs=3,
        per_device_train_batch_size=3,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=texts)
    print("final", repr(trainer.train().training_loss))
