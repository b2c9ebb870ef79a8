// Package controllers is the role controllers: what acts on objects of the Kubernetes API, as upstream's kube-controller-manager and scheduler do.
//
//   - binder gives pods a node;
//   - service-account and root-ca keep an account, and the authority's certificate, in every namespace;
//   - serviceaccount-token fills secrets that are there for the token of an account;
//   - endpoints says of services which pods they lead to;
//   - deployment moves pods from one template to the next, replicaset and replication-controller keep as many as are asked for;
//   - statefulset keeps pods whose names stay, daemonset one on each node;
//   - job runs the pods of jobs, ttl-after-finished deletes jobs that have finished, cronjob makes them at their times;
//   - horizontalpodautoscaler changes how many pods there are by what they use;
//   - disruption says how many pods of a budget may be evicted;
//   - service-lb gives services of the type LoadBalancer the addresses of the nodes;
//   - service-cidr says which ranges of services' addresses can be used, and keeps those that are deleted while they are needed;
//   - ingress-class tells of ingresses that no controller can take;
//   - namespace empties namespaces that are deleted;
//   - garbage-collector deletes objects whose owners are gone;
//   - certificates approves and signs certificate signing requests of the kubelet's signers;
//   - node-lifecycle says of nodes whose agent is silent that nothing is known of them, and taints nodes by their conditions;
//   - taint-eviction deletes pods from nodes with taints that they do not tolerate;
//   - pod-garbage-collector removes pods that no agent can end.
//
// It reaches the API by client-go alone, with the rights of the configuration that it is given. So somebody else's controllers can stand in its place
// (each of ours can be switched off), and ours beside somebody else's API server. It keeps nothing of its own: whatever was being done when it ended
// is found again in the API at the next start.
//
// All controllers share one set of informers and connections. Nothing ticks: they wake when the API tells of a change, or at a time that something was
// put off to.
package controllers
