// Package executor holds nothing itself. Its packages are the executor: protocol, client and launch are for its callers;
// keeper and worker are its two processes; hold and journal are what those two share; crilog and stdio serve
// the worker.
//
// The tests here run the real binary with real containers.
package executor
