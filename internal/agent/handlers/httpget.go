package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
)

func (h *Handlers) probeHTTP(ctx context.Context, on Subject, what *v1.HTTPGetAction, timeout time.Duration) Answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := h.request(ctx, on, what, "probe")
	if err != nil {
		return Answer{Unknown, err.Error()}
	}
	resp, err := h.web.get(req)
	if err != nil {
		return Answer{Failure, err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxOutput))
	switch {
	case err != nil:
		return Answer{Unknown, err.Error()}
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		// The body is not told: a server may put into it what is not for those who may read events (kubernetes/kubernetes#99425).
		return Answer{Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)}
	case resp.StatusCode >= 300:
		return Answer{Warning, "Probe terminated redirects, Response body: " + string(body)}
	}
	return Answer{Success, string(body)}
}

// get is a request of a probe or hook, with redirects to the same host followed; the answer of one to another host is the answer.
func (w *web) get(req *http.Request) (*http.Response, error) {
	resp, err := w.client.Do(req)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w (Client.Timeout exceeded while awaiting headers)", err)
	}
	return resp, err
}

const maxRedirects = 10

func redirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}
