package apitest

import (
	"context"
	"net/http"
)

// landing lets every write come to its end that was begun. When controllers are stopped in the midst of one, as if they were killed, the API server may
// carry it out or not; here it always does, before Control's stop returns: who begins anew after that finds what the one before has asked for.
type landing struct{ http.RoundTripper }

func (l landing) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet {
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	return l.RoundTripper.RoundTrip(r)
}
