// Package reach is the road from the API server to the agents of nodes, and to what their pods serve: where an agent is, by
// what its Node object says; how the two prove to each other who they are; the URLs and queries of the kubelet's API; how
// the stream of a client is carried there; and where a proxied request may go.
//
// It guarantees that
//   - nothing is connected before a request needs it;
//   - the API server shows who it is to nobody but the agent of the node that is meant, which a certificate of the authority
//     with the agent's name proves, whatever address the node has published;
//   - any other connection is without credentials, and leads to an address that an agent has published and that is neither
//     loopback nor link-local nor one of a cloud's metadata, and for a pod with a network of its own none of this host's;
//   - an address that somebody else has written down for a pod, as the endpoints of a service are, leads nowhere unless it is
//     one of the pod's.
//
// It knows nothing of the objects whose subresources lead here, beside what the road needs: which pod a request is about,
// and which container of it, is for package registry/pod to say, and which pod of those behind a service for registry/service.
package reach
