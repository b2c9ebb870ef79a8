// Package workload is what the resources whose objects make pods from a template have in common: deployments, replicasets, statefulsets, daemonsets,
// replicationcontrollers, jobs and cron jobs. It checks their templates, selectors, roll-outs and statuses, shows the columns of their tables, and serves their subresource scale.
//
// The rules and most of the words are those of a Kubernetes API server, because people and tools know them.
package workload
