// Units: which launches share a gate, and how far ahead of the daemon a thread may be.
//
// A unit is what one thread launches into one stream, while nobody else takes a ticket of the
// device. Any thread; a race of two costs a gate or a prediction, and no order.
#pragma once

#include "ipc/gate_sizes.h"
#include "shim/gate/page.h"

namespace heddle::shim {

// A unit whose gate is open takes no launch any more after this time: it is about to be over, and
// what comes behind it could not be stopped.
inline constexpr int64_t kUnitNs = 200'000;

// True if the launch, predicted to take `us`, goes behind the gate of this thread's unit.
bool goes_on(const GateBook& book, const StreamSlot& stream, const Unit& unit, float us,
             int64_t now_ns);
// It does so.
void add_to_unit(GateBook& book, int device, Unit& unit, float us);

// The program will wait for what the stream has. The stream's newest gate if no launch follows in
// its unit, which ends here if it is this thread's: put_last_word() is due behind what the program
// waits for. Else 0.
uint64_t end_unit(const GateBook& book, const StreamSlot& stream, Unit& unit);

// Something else that takes places in the driver's queue: a copy, an event, the ties of a detour.
void add_beside_units(GateBook& book, int device, uint32_t places = 1);

// The daemon let that ticket go.
bool is_released(const GateBook& book, int device, uint32_t ticket);
// Whatever is posted next goes at once.
bool gates_stand_open(const GateBook& book, int device);
// What the daemon wants: kGatesSoon and its like.
uint32_t wanted(const GateBook& book, int device);

// True if so much is posted and not let go that the next launch must wait.
bool is_far_ahead(const GateBook& book, int device);
// Sleeps until some are let go, or for a short time.
void nap_at_gate(const GateBook& book, int device);

}  // namespace heddle::shim
