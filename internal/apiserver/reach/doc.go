// Package reach is the road from the API server to the agents of nodes: where an agent is, by what its Node object says;
// how the two prove to each other who they are; the URLs and queries of the kubelet's API; and how the stream of a
// client is carried there.
//
// It guarantees that nothing is connected before a request needs it, and that an agent is never spoken to whose
// certificate the authority has not signed.
//
// It knows nothing of the objects whose subresources lead here, beside what the road needs: which pod a request is about,
// and which container of it, is for package registry/pod to say.
package reach
