"""d3rlpy: conservative Q-learning has an optimizer each for actor, critics and two multipliers."""

import logging

import d3rlpy
import numpy as np
import structlog

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
d3rlpy.seed(0)
random = np.random.default_rng(0)
states = random.normal(size=(200, 3)).astype(np.float32)
actions = random.uniform(-1, 1, size=(200, 1)).astype(np.float32)
episodes = d3rlpy.dataset.MDPDataset(
    observations=states,
    actions=actions,
    rewards=-np.abs(states[:, 0] - actions[:, 0]),
    terminals=np.tile([0.0] * 19 + [1.0], 10),
)
small = d3rlpy.models.VectorEncoderFactory([16])
learner = d3rlpy.algos.CQLConfig(
    actor_encoder_factory=small, critic_encoder_factory=small, batch_size=16, n_action_samples=2
).create(device="cpu")
learner.fit(
    episodes,
    n_steps=40,
    n_steps_per_epoch=20,
    show_progress=False,
    logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
)
print("final", repr(float(learner.predict(states[:10]).sum())))
