// Package controllers is the role controllers: what acts on objects of the Kubernetes API, as upstream's kube-controller-manager and scheduler do.
// Which there are, and what they do, is in package catalog; how each is made, in factories.go.
//
// It reaches the API by client-go alone, with the rights of the configuration that it is given. So somebody else's controllers can stand in its place
// (each of ours can be switched off), and ours beside somebody else's API server. It keeps nothing of its own: whatever was being done when it ended
// is found again in the API at the next start.
//
// All controllers share one set of informers and connections. Nothing ticks: they wake when the API tells of a change, or at a time that something was
// put off to.
//
// Tests of controllers that need an API server are here, in files of the controllers' names, but for the largest ones': a test program with an API server has
// 90 MB and takes 9 seconds of a processor to link. What a controller decides is tested beside it.
package controllers
