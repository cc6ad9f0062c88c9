"""stable-baselines3 PPO: every rollout is learnt from in minibatches, several times, clipped."""

from stable_baselines3 import PPO

agent = PPO("MlpPolicy", "Acrobot-v1", seed=0, device="cpu", n_steps=96, batch_size=24, n_epochs=2)
agent.learn(total_timesteps=288)
print("final", repr(sum(weight.sum().item() for weight in agent.policy.parameters())))
