// Package crash kills the parts of a running node with SIGKILL and holds what is left against the table of deaths:
//
//	dies          running containers                  output                                      exits meanwhile
//	monopod       untouched, ttys and stdin too       nothing lost                                known exactly
//	the worker    untouched, ttys and stdin too       at most one read buffer lost or repeated    known exactly
//
// TestRandomDeaths does it at random moments, under all that a node does for workloads, services and policies.
package crash
