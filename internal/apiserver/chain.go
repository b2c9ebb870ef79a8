package apiserver

import (
	"fmt"
	"slices"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// link is one server of the chain. Its groups, its paths and their documentation are its own.
type link struct {
	name string
	// make makes the server, which hands to next what it does not know.
	make func(next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error)
}

// chain makes the servers of links, each with the one behind it as its next (k8s.io/apiserver's delegation), and returns the first, which all requests come to: it
// has the port, and runs the hooks and answers for the health of all. What none of them knows is not found.
//
// Who serves resources that are not known before the server runs is a link behind ours, and who hands whole groups to other servers one before it.
func chain(links ...link) (*genericapiserver.GenericAPIServer, error) {
	next := genericapiserver.NewEmptyDelegate()
	var first *genericapiserver.GenericAPIServer
	for _, l := range slices.Backward(links) {
		made, err := l.make(next)
		if err != nil {
			return nil, fmt.Errorf("make the API server %s: %w", l.name, err)
		}
		first, next = made, made
	}
	return first, nil
}
