// Package podstats collects what the node and its pods use: of pods by CRI alone, of the node by what the kernel tells of the machine.
//
// Nothing is collected while nobody asks. What is asked for at the same time, or within a second, is answered from one collection,
// so that ten who ask cost what one does. A collection is bounded in time and outlives whoever began it.
//
// The rates of processor time are made here, purely, from two collections: so they are there on every runtime, and all of the same
// interval. A container that was seen once has the runtime's own rate, if it tells one.
//
// Volumes and logs take a walk over files. That is done in the background, when somebody has asked, at most once a minute and bounded in
// time; what is told is the last measurement, with its time.
package podstats
