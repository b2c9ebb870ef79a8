// Package job is the controller of jobs: pods run until enough of them have succeeded, or until it is clear that they will not.
//
// It is upstream's in what it does, in its conditions, reasons, messages and events, and in what it writes to pods, so that either can take over what the
// other one has begun. What is to be done follows from the job and its pods (Decide), what its status says from that and from what was done (Track); while
// the caches do not show all that was written for a job nothing is decided.
//
// # Each pod counts once
//
// Pods have the finalizer batch.kubernetes.io/job-tracking, so that none goes before it was counted (KEP-2307). One that has ended passes these steps, and
// a controller that is killed between any two goes on with the next:
//
//	ended, with finalizer
//	  → its UID is in status.uncountedTerminatedPods (of an Indexed job that succeeded: its index in completedIndexes)   1. the status is written
//	  → it has no finalizer                                                                                              2. the pod is patched
//	  → its UID is out of the status and in succeeded or failed                                                          3. the status is written
//
// A pod without the finalizer is never counted again. The conditions that a job will end with (SuccessCriteriaMet, FailureTarget) are written with step 1,
// those that it has ended with (Complete, Failed) when no pod is left that is uncounted or about to end.
//
// Nothing else is kept but the times of the last failures, for the delays of new pods, and those are read from the pods again.
package job
