// Package disruption says of pod disruption budgets how many of their pods may be deleted by an eviction now. Whoever evicts a pod asks the API server, and
// that looks at the budget's status, which is written here.
//
//   - Decide is the status of a budget: how many of its pods are healthy, how many have to be, and how many may go.
//   - expected says how many pods there should be, by the scales of those who own them.
//   - A pod that an eviction has let go, and that was not deleted in two minutes, is the budget's again.
//   - A pod with the condition DisruptionTarget that was not deleted in two minutes loses it.
//
// It is upstream's controller disruption in what it does, and in its words. Other than there, each budget that a pod belongs to is looked at when the pod changes,
// also one that it has left, and so are budgets when somebody's scale does.
package disruption
