// Package plugin makes allocatable devices of what device plugins offer: the kubelet's device plugin API, v1beta1.
//
// It serves the kubelet's registration socket, and looks for plugins in the kubelet's plugin watcher folder. What it guarantees:
//   - the socket is served before it is visible, and it becomes visible as a kubelet's does: the old name goes, the new one is created. It is
//     made again when somebody removes it. Another program's socket is not taken away from it: that is a problem of the snapshot;
//   - Register answers first and dials then, again and again, so plugins that serve only after its success and plugins that serve before
//     both work. A resource that an active plugin has (its stream is open, and it answers within a second) is not given to another;
//   - a plugin's devices are healthy only while its stream is open. When that ends they are unhealthy at once, and the resource is absent
//     after the grace period, unless the plugin registers again or opens the stream again on the same socket;
//   - what plugins send is outside data: one that hangs, floods, dies or sends nonsense costs a bounded number of goroutines, a bounded share of
//     a processor, and its own resource, nothing else.
//
// A kubelet that starts deletes every socket of the folder. Some plugins wait for that sign to register again, others for kubelet.sock to be
// created anew, and the deletion may hit the socket of one that has just been started. So nothing is deleted here at the start; the sockets of
// device plugins that are alive and have not registered a little later are then removed, as a kubelet would have, and so are those that nobody serves.
//
// Nothing is stored: kubelet.sock is new after each start, so plugins register again. Who has which device, and what the plugin answered for
// it, is the manager's to keep.
package plugin
