"""sb3-contrib TRPO: half of the optimizer's parameters are moved by hand and never have a gradient."""

from sb3_contrib import TRPO

agent = TRPO(
    "MlpPolicy", "Acrobot-v1", seed=0, device="cpu", n_steps=128, batch_size=32, n_critic_updates=3
)
agent.learn(total_timesteps=384)
print("final", repr(sum(weight.sum().item() for weight in agent.policy.parameters())))
