package handlers

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// request is what an httpGet asks for; purpose is "probe" or "lifecycle", for the user agent.
func (h *Handlers) request(ctx context.Context, on Subject, what *v1.HTTPGetAction, purpose string) (*http.Request, error) {
	port, err := portNumber(what.Port, on.Container)
	if err != nil {
		return nil, err
	}
	// The path may have a query. One that is no part of a URL is sent as a path, escaped.
	u, err := url.Parse(what.Path)
	if err != nil {
		u = &url.URL{Path: what.Path}
	}
	u.Scheme = cmp.Or(strings.ToLower(string(what.Scheme)), "http")
	u.Host = net.JoinHostPort(cmp.Or(what.Host, on.IP), strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, header := range what.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
	}
	if _, has := req.Header["User-Agent"]; !has {
		req.Header.Set("User-Agent", "kube-"+purpose+"/"+h.version)
	}
	if _, has := req.Header["Accept"]; !has {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		// Set to nothing, it is not to be sent.
		req.Header.Del("Accept")
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	return req, nil
}
