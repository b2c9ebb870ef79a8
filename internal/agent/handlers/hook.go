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

// HookFallback is the reason of the event that tells a hook's Warning: Kubernetes' name for a hook of the scheme HTTPS whose server speaks plain
// HTTP.
const HookFallback = "LifecycleHTTPFallback"

// Hook carries out what a lifecycle hook names, to its end or the context's; it has no time limit of its own. Output is that of a Failure for
// whom the pod is about, in a kubelet's words, and may have what the container answered: it is for a container's status, not for an event. With
// a Warning the hook has done its work; Output is the message of the event HookFallback. It is never Unknown: a hook that could not be asked has failed.
//
// Any answer of an HTTP server is a success, whatever its status. As with a kubelet, tcpSocket fails: the API has had no meaning for it in a hook.
func (h *Handlers) Hook(ctx context.Context, on Subject, hook *v1.LifecycleHandler) Answer {
	switch {
	case hook.Exec != nil:
		return h.hookExec(ctx, on, hook.Exec)
	case hook.HTTPGet != nil:
		return h.hookHTTP(ctx, on, hook.HTTPGet)
	case hook.Sleep != nil:
		return hookSleep(ctx, on, hook.Sleep)
	}
	return Answer{Failure, fmt.Sprintf("Cannot run handler: invalid handler: %v", hook)}
}

func (h *Handlers) hookExec(ctx context.Context, on Subject, what *v1.ExecAction) Answer {
	stdout, stderr, code, err := h.exec.ExecSync(ctx, on.ID, what.Command, 0)
	if err == nil && code != 0 {
		err = fmt.Errorf("command exited with %d", code)
	}
	if err != nil {
		return hookFailed("Exec", what.Command, on, fmt.Sprintf("%v, message: %q", err, both(stdout, stderr)))
	}
	return Answer{Result: Success}
}

func (h *Handlers) hookHTTP(ctx context.Context, on Subject, what *v1.HTTPGetAction) Answer {
	if what.Host == "" && on.IP == "" {
		return hookFailed("HTTP", what.Path, on, "the pod has no address, and the hook names no host")
	}
	req, err := h.request(ctx, on, what, "lifecycle")
	if err != nil {
		return hookFailed("HTTP", what.Path, on, err.Error())
	}
	err = h.web.visit(req)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		if err != nil {
			return hookFailed("HTTP", what.Path, on, err.Error())
		}
		return Answer{Result: Success}
	}
	// What is secret was for a server with TLS.
	again := req.Clone(ctx)
	again.URL.Scheme = "http"
	again.Header.Del("Authorization")
	if h.web.visit(again) != nil {
		return hookFailed("HTTP", what.Path, on, err.Error())
	}
	return Answer{Warning, fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host)}
}

// visit makes a request, and reads the beginning of an answer of which nothing is needed.
func (w *web) visit(req *http.Request) error {
	resp, err := w.get(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// A server that was broken off in the middle of a short answer may take that for a failure of its own; that it was not read is none of ours.
	_, _ = io.CopyN(io.Discard, resp.Body, MaxOutput)
	return nil
}

func hookSleep(ctx context.Context, on Subject, what *v1.SleepAction) Answer {
	timer := time.NewTimer(time.Duration(what.Seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return hookFailed("Sleep", what.Seconds, on, "container terminated before sleep hook finished")
	case <-timer.C:
		return Answer{Result: Success}
	}
}

// hookFailed is the failure of a hook of a kind.
func hookFailed(kind string, what any, on Subject, why string) Answer {
	return Answer{Failure, fmt.Sprintf("%s lifecycle hook (%v) for Container %q in Pod %q failed - error: %s", kind, what, on.Container.Name, podName(on.Pod), why)}
}
