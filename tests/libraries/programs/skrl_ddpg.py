"""skrl: one enabled gradient scaler for two optimizers; the actor's loss leaves scaled gradients."""

import logging
import tempfile

import gymnasium
import torch

logging.disable(logging.WARNING)

from skrl.agents.torch.ddpg import DDPG, DDPG_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed

set_seed(0)
car = gymnasium.make("MountainCarContinuous-v0")
car.reset(seed=0)
car.action_space.seed(0)
environment = wrap_env(car, verbose=False)
spaces = {
    "observation_space": environment.observation_space,
    "action_space": environment.action_space,
}


class Network(DeterministicMixin, Model):
    """The actor sees where the car is; the critic also sees what the actor did."""

    def __init__(self, names, width):
        Model.__init__(self, **spaces, device="cpu")
        DeterministicMixin.__init__(self)
        self.names = names
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(width, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )

    def compute(self, inputs, role=""):
        seen = torch.cat([inputs[name] for name in self.names], dim=1)
        return self.layers(seen), {}


def actor():
    return Network(["observations"], 2)


def critic():
    return Network(["observations", "taken_actions"], 3)


networks = {
    "policy": actor(),
    "target_policy": actor(),
    "critic": critic(),
    "target_critic": critic(),
}
with tempfile.TemporaryDirectory() as folder:
    settings = DDPG_CFG(
        batch_size=16,
        grad_norm_clip=0.5,
        learning_starts=16,
        mixed_precision=True,
        random_timesteps=16,
    )
    settings.experiment.directory = folder
    settings.experiment.write_interval = 0
    settings.experiment.checkpoint_interval = 0
    memory = RandomMemory(memory_size=200, num_envs=1, device="cpu")
    agent = DDPG(models=networks, memory=memory, cfg=settings, device="cpu", **spaces)
    how = {
        "timesteps": 90,
        "headless": True,
        "disable_progressbar": True,
        "close_environment_at_exit": False,
    }
    SequentialTrainer(env=environment, agents=agent, cfg=how).train()
assert agent.scaler.is_enabled()
print("final", repr(sum(weight.sum().item() for weight in networks["policy"].parameters())))
