"""Crash tests: participants that die or stop at every step of the protocol, and what the others make of it.

Two instruments, which the library does not know of: `interpose.c` is preloaded into Python and has points around system
calls; `driver.c` is the whole C library with these points, and one after each access to shared memory (`accesses.h`).
`harness.py` runs the driver, and kills or stops it at each point. `topics.py`, `channels.py`, `queues.py` and
`records.py` have tables of scenes, and what must hold afterwards; `test_steps.py` plays them.

=============================================  ===================================  ===================================
point (the last thing that was done)           what is left                         who repairs, when
=============================================  ===================================  ===================================
a file was allocated, but not linked           nothing: it has no name              the kernel
the ring was linked, the side not yet          a ring of zeros                      the next to connect makes the side
topic locked                                   nothing: the kernel drops the lock   the kernel
publisher: identity written                    an entry                             a starter that needs the place
publisher: write_uid stored                    an owner that never sent             the next publisher
publisher: notify of its start                 a complete start                     nobody needs to
begun stored                                   begun != sent                        the next publisher, by its death
checkpoint stored, turn not                      half a grant                         the next publisher's grant
limit stored (announced)                       a limit ahead of write_pointer       nobody needs to; it is kept
wrap mark, write_pointer at the next lap       a lap that ends early, no message    subscribers step over it
payload half copied, or whole                  bytes beyond write_pointer           nobody needs to
write_pointer stored (committed)               `sent` and `bytes` are short         the next publisher, by walking
sent stored                                    sleepers, if there were any          the next publisher wakes everybody
eventcount exchanged, nobody woken yet          sleepers, and no bit that says so    the next publisher wakes everybody
closing: write_uid is 0                        an entry                             a starter that needs the place
subscriber: identity written                   an entry                             a joiner that needs the place
subscriber: slot's uid exchanged               a slot whose cursor is old           the next publisher, or joiner
subscriber: eventcount set, or asleep           one bit, one sleeper less            the next send, by one wake in vain
subscriber: payload half copied                nothing shared                       nobody needs to
=============================================  ===================================  ===================================

Of work queues:

=============================================  ===================================  ===================================
point (the last thing that was done)           what is left                         who repairs, when
=============================================  ===================================  ===================================
place held, counted as entered or not          a place of a dead owner              who looks for the dead
payload or head written                        the same                             the same
word READY, `ready` not counted                the message; sleepers                sleepers, once a second
`ready` counted, nobody woken or told          sleepers, and a debt in the row      the same; the debt: who looks
word taken                                     a message of a dead owner            who looks: back in its order
payload copied, deliveries stored or not       the same                             the same
lease stored                                   the same                             the same, or when the lease ends
word freed, nobody woken                       room, senders asleep                 senders, once a second
bit on, asleep, or woken                       a bit, and a wake that is used up    who looks; other sleepers
looking for the dead: some words exchanged     the others                           who looks next
lock held                                      nothing: the kernel drops it         the kernel
generation stored, identity not                a free row, places of a former one   who looks: by their generation
leaving: jobs are back, row still named        a dead owner without places          who needs the row
=============================================  ===================================  ===================================
"""
