"""stable-baselines3 SAC: the actor's loss leaves gradients in the critics, which are thrown away."""

from stable_baselines3 import SAC

agent = SAC(
    "MlpPolicy",
    "MountainCarContinuous-v0",
    seed=0,
    device="cpu",
    batch_size=16,
    learning_starts=30,
    policy_kwargs={"net_arch": [16]},
)
agent.learn(total_timesteps=180)
weights = sum(weight.sum().item() for weight in agent.actor.parameters())
print("final", repr(weights + agent.log_ent_coef.item()))
