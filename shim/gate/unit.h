// Units: which launches share a gate, and how far ahead of the daemon a thread may be.
//
// A unit is what one thread launches into one stream while no other thread or stream takes a ticket
// of the device. Any thread. A race of two threads may cost a gate or a prediction, never the
// order.
#pragma once

#include "ipc/gate_sizes.h"
#include "shim/gate/page.h"

namespace heddle::shim {

// A unit whose gate is open takes no more launches after this time. The unit is about to end, and a
// launch in it could not be held back any more.
inline constexpr int64_t kUnitNs = 200'000;

// True if the launch, predicted to take `us`, goes behind the gate of this thread's unit.
bool goes_on(const GateBook& book, const StreamSlot& stream, const Unit& unit, float us,
             int64_t now_ns);
// Adds a launch to the unit.
void add_to_unit(GateBook& book, int device, Unit& unit, float us);

// The program will wait for the stream's work. Ends the stream's newest unit if it is this
// thread's. Returns its gate if no launch follows in the unit: the caller then calls
// put_last_word() behind the work that the program waits for. Else 0.
uint64_t end_unit(const GateBook& book, const StreamSlot& stream, Unit& unit);

// Counts other entries of the driver's queue: a copy, an event, the ties of a detour.
void add_beside_units(GateBook& book, int device, uint32_t places = 1);

// Whether that ticket was let go, by the daemon or by the floor.
bool is_released(const GateBook& book, int device, uint32_t ticket);
// Whether launches that are posted next would go at once.
bool gates_stand_open(const GateBook& book, int device);
// GatePage::wanted: kGatesSoon and so on.
uint32_t wanted(const GateBook& book, int device);

// True if so much is posted and not yet let go that the next launch must wait.
bool is_far_ahead(const GateBook& book, int device);
// Sleeps for 200 µs.
void nap_at_gate(const GateBook& book, int device);

}  // namespace heddle::shim
