// Package eviction ends pods that take more of the node's disk than they may: an emptyDir over its sizeLimit, a container over its limit of ephemeral-storage,
// a pod over the sum of these (KEP-361).
//
// What a pod takes is decided on as a value (Exceeded); a Watcher measures pods with such limits from time to time, and no others. It guarantees that
// measuring takes a small share of a processor however many files there are, so a pod with very many is looked at more seldom.
//
// Of shortages it knows the disk alone by now. What ends pods for another one belongs here as well, as another judge that the agent's workers ask
// (worker.Judge); whether the machine is short of something is package pressure's to know. A judge is asked pod by pod: one that ranks pods against each other does it
// beside, as the Watcher does, and pokes those that it has chosen.
package eviction
