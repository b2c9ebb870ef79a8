// Package cni connects sandboxes by the CNI configuration of the host (github.com/containernetworking/cni, up to version
// 1.1.0 of its specification): the plugins of others are executed.
//
// It guarantees:
//   - an attachment is on disk, with the configuration and the arguments of its ADD, before the first plugin runs; its DEL
//     gets the same ones and the result of the ADD, whatever has become of the files meanwhile;
//   - what a crash has interrupted, Teardown or Reconcile ends: a plugin that still runs for it is killed, then its DEL is done;
//   - no plugin holds its caller for longer than a bound; one that does is killed with its children, and the error names it;
//   - Status answers at once, whatever a plugin's STATUS does.
//
// It does not repair what a plugin has made and somebody else has taken away: a CHECK that fails is logged. What a plugin keeps
// for its network as a whole, such as a bridge, is the plugin's; CNI knows no command that removes it.
//
// The configuration is that of the first valid file of the directory, by name, as other runtimes have it. It is read again
// for each sandbox, so that a new one always gets the newest.
package cni
