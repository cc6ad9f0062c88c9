"""The names that findings and loops give to objects."""

from zerograd.static.read.keys import made
from zerograd.static.training_loops import name_of


def test_an_object_that_another_one_holds_is_named_as_the_code_reaches_it() -> None:
    trainer = made(3, 4)
    key = trainer.attribute("optimizers").item("k")
    assert name_of(key, {trainer: "trainer"}) == "trainer.optimizers[k]"
    assert name_of(key, {}) == key.shown
