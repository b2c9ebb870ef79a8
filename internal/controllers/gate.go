package controllers

import "net/http"

// writes is how many requests that write the controllers have under way. The API server answers 200 at a time, everybody's together: so half of them are left to
// agents and people, however much there is to do. One that it refuses for being too many (429) client-go sends again after the time that it is told.
const writes = 100

// gate lets so many requests that write pass at a time; the others wait for their turn.
type gate struct {
	http.RoundTripper
	places chan struct{}
}

func newGate(rt http.RoundTripper) http.RoundTripper {
	return gate{rt, make(chan struct{}, writes)}
}

// RoundTrip implements http.RoundTripper.
func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return g.RoundTripper.RoundTrip(r)
	}
	select {
	case g.places <- struct{}{}:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	defer func() { <-g.places }()
	return g.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport.
func (g gate) WrappedRoundTripper() http.RoundTripper { return g.RoundTripper }
