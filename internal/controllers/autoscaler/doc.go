// Package autoscaler is the controller of horizontal pod autoscalers: it changes how many pods a deployment, or whatever else has a scale, wants, so that what its pods
// use comes near to a target.
//
//   - pool says how many pods a metric asks for (calculate.go); propose does so for each kind of metric.
//   - normalize makes of that what is done next: within bounds, not too fast, not down and up again (behavior.go).
//   - Decide puts this together, with the status and the events.
//   - Client asks the API server for metrics; Controller looks, has Decide decide, scales and tells.
//
// Each autoscaler is looked at every 15 s, and when somebody has changed what it is to do. Without any nothing happens.
//
// It is upstream's controller in what it does, and in its words, with the defaults of its settings and gates (tolerances of autoscalers, but no scaling to zero). What was
// recommended and done before is known to the process alone: one that begins anew does not shrink anything for the time of the stabilization window, and
// its policies count from then on.
package autoscaler
