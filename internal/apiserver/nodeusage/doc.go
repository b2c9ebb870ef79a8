// Package nodeusage tells what nodes and the containers on them use now, as the nodes' agents count it: for metrics.k8s.io.
//
// Agents are asked when somebody asks, and never else, for /metrics/resource. A rate needs two samples: of an agent that was asked lately the last one
// is the first; else it is asked twice, a little more than a second apart. All who ask for a node within some seconds, or while it is asked, have one answer.
//
// Who asks waits for an agent for some seconds at most, and for all of them at once. An agent that did not answer is not waited for again so soon.
package nodeusage
