// Package deployment is the controller of deployments: each has a replica set a template, and the pods move from the old ones to the new one by the
// deployment's strategy.
//
// What is to be done follows from the deployment and its replica sets alone (Decide), and while the caches do not show all that was written for a
// deployment nothing is decided. The name of the new replica set follows from the template, so that a controller that is killed at any moment makes no
// second one.
//
// It is upstream's in what it does, in its annotations, conditions, reasons and events; so either can take over what the other one has begun.
package deployment
