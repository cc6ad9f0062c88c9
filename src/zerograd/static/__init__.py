"""The reader of source code: from a file to findings, without importing or running it.

`check_file` is the way in. `read` parses, `interp` turns a syntax tree into a flow of acts, and the modules
here follow the gradients of each subject through it:

    check_file < analyse                         one file: its findings, and its training loops
    roots, obviously_right, reuse                what is interpreted; what need not be, or is known from before
    explore_root                                 one root, subject by subject:
      subject_events, projection,                acts become events of the subject's gradients,
      named_parameters                           and a flow of these
      accumulation, unread_guards,               windows: counted, guarded by what cannot be read,
      micro_batches, loss_scaling                written as a loop, scaled elsewhere
      called_again, repeated_calls,              functions that are called again and again,
      entry_states, callbacks, chosen_arms       what they find, what they call, what a setting chooses
      rule_groups, doubts, outcomes              the rules that are asked, what speaks against a violation
    never_stepped, untrained_modules             two mistakes that show without a flow
    training_loops, written_loops                the training loops of a file, for `--loops` and `--why`

What cannot be known is unknown, and no rule reports an unknown state: gradients at the start of a
function, an optimizer that an unseen function gets, generators, recursion, calls deeper than ten.
With several optimizers, an optimizer is reported only for a loss that must reach its parameters.

May import: core, rules, explore, static.frameworks, static.read, static.interp.
"""
