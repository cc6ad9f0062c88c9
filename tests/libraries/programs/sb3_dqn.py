"""stable-baselines3 DQN: several gradient steps after every few moves."""

from stable_baselines3 import DQN

agent = DQN(
    "MlpPolicy",
    "MountainCar-v0",
    seed=0,
    device="cpu",
    batch_size=16,
    learning_starts=40,
    train_freq=8,
    gradient_steps=3,
    target_update_interval=60,
    policy_kwargs={"net_arch": [16]},
)
agent.learn(total_timesteps=400)
print("final", repr(sum(weight.sum().item() for weight in agent.q_net.parameters())))
