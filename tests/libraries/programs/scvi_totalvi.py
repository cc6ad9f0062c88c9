"""scvi-tools: model and adversary take turns, and each one's loss leaves gradients in the other."""

import logging
import warnings

import anndata
import numpy as np

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import scvi

scvi.settings.seed = 0
random = np.random.default_rng(0)
cells = anndata.AnnData(random.negative_binomial(3, 0.5, size=(96, 12)).astype(np.float32))
cells.obs["lab"] = ["north", "south"] * 48
cells.obsm["proteins"] = random.poisson(8, size=(96, 3)).astype(np.float32)
scvi.model.TOTALVI.setup_anndata(cells, batch_key="lab", protein_expression_obsm_key="proteins")
model = scvi.model.TOTALVI(cells, n_latent=3, empirical_protein_background_prior=False)
model.train(
    max_epochs=3,
    batch_size=24,
    accelerator="cpu",
    adversarial_classifier=True,
    early_stopping=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
print("final", repr(float(model.get_latent_representation().sum())))
