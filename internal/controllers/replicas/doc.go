// Package replicas keeps as many pods as replica sets, and replication controllers, ask for. The two differ in their objects and in nothing else.
//
// It is upstream's replica set controller in what it does: in which pods go first when there are too many, in its conditions, reasons and events. What it
// does next follows from the API's objects alone (Plan), and while its cache does not show all that it has written it decides nothing: so a controller that
// is killed at any moment makes no pod twice and forgets none.
package replicas
