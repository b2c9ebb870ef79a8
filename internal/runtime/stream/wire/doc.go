// Package wire serves the streams of CRI's Exec, Attach and PortForward over HTTP, in every protocol that kubelets, crictl
// and kubectl speak:
//
//	exec, attach   SPDY/3.1 with v1 to v4.channel.k8s.io; WebSocket with [v4. or v5.]channel.k8s.io, [v4.]base64.channel.k8s.io,
//	               or no subprotocol, which is channel.k8s.io
//	port-forward   SPDY/3.1 with portforward.k8s.io; the same inside a WebSocket (SPDY/3.1+portforward.k8s.io);
//	               WebSocket with v4.channel.k8s.io and v4.base64.channel.k8s.io, the ports in the CRI request
//
// It guarantees that nothing of a session outlives it: neither a goroutine nor a descriptor is left when the client is gone,
// whether it says so or not, and that a client's going is seen (its context ends) also while nothing is read from it.
//
// A URL's token is all that a client needs, so it is random, good once and for a minute. The name in the Host header cannot be
// checked: kubelets pass on that of their own client. Nor need it be: a web page that reaches the port, by DNS rebinding or
// otherwise, knows no token, and there are no cookies or the like that a browser would add.
//
// It does not know what a container is: a Backend does the work.
package wire
