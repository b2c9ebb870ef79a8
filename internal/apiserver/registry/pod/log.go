package pod

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"
)

// LogREST serves pods/log: it streams a container's log from the agent.
type LogREST struct{ locator locator }

var (
	_ rest.GetterWithOptions = &LogREST{}
	_ rest.StorageMetadata   = &LogREST{}
)

// New implements rest.Storage.
func (*LogREST) New() runtime.Object { return &corev1.Pod{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*LogREST) Destroy() {}

// NewGetOptions implements rest.GetterWithOptions.
func (*LogREST) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}

// ProducesMIMETypes implements rest.StorageMetadata.
func (*LogREST) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject implements rest.StorageMetadata: a log is text, not an object.
func (*LogREST) ProducesObject(string) any { return "" }

// OverrideMetricsVerb makes a followed log count as a connection in the server's metrics: it is open for as long as
// the client likes and would spoil the latencies of GET.
func (*LogREST) OverrideMetricsVerb(verb string) string {
	if verb == "GET" {
		return "CONNECT"
	}
	return verb
}

// Get implements rest.GetterWithOptions. The result is a rest.ResourceStreamer, which the server copies to the client
// until either side ends. A pod that has no node yet has an empty log.
func (r *LogREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	opts, ok := options.(*corev1.PodLogOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodLogOptions, found %T", options))
	}
	if errs := validateLogOptions(opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), name, errs)
	}
	pod, err := r.locator.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	container, err := chooseContainer(pod, opts.Container)
	if err != nil {
		return nil, err
	}
	streamer := &genericrest.LocationStreamer{
		ContentType:     "text/plain",
		Flush:           opts.Follow,
		ResponseChecker: genericrest.NewGenericHttpResponseChecker(corev1.Resource("pods/log"), name),
		RedirectChecker: genericrest.PreventRedirects,
	}
	if pod.Spec.NodeName == "" {
		return streamer, nil
	}
	agent, err := r.locator.agent(ctx, pod)
	if err != nil {
		return nil, err
	}
	streamer.Location, streamer.Transport = agent.Log(pod, container, opts)
	return wholeStreamer{streamer}, nil
}

// wholeStreamer streams all that there is. Over a WebSocket the library drops what it reads together with the end, as bodies of a known length give it.
type wholeStreamer struct{ *genericrest.LocationStreamer }

var _ rest.ResourceStreamer = wholeStreamer{}

// InputStream implements rest.ResourceStreamer.
func (s wholeStreamer) InputStream(ctx context.Context, apiVersion, accept string) (stream io.ReadCloser, flush bool, contentType string, err error) {
	stream, flush, contentType, err = s.LocationStreamer.InputStream(ctx, apiVersion, accept)
	if stream != nil {
		stream = endAlone{stream}
	}
	return stream, flush, contentType, err
}

// endAlone tells the end of a stream by itself, after the last bytes.
type endAlone struct{ io.ReadCloser }

// Read implements io.Reader.
func (r endAlone) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if n > 0 && err == io.EOF {
		err = nil // whoever reads on is told again
	}
	return n, err
}

func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	if o.SinceSeconds != nil && *o.SinceSeconds < 1 {
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if o.SinceSeconds != nil && o.SinceTime != nil {
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	}
	if o.Stream != nil {
		streams := []string{corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr}
		if !slices.Contains(streams, *o.Stream) {
			errs = append(errs, field.NotSupported(field.NewPath("stream"), *o.Stream, streams))
		} else if *o.Stream != corev1.LogStreamAll && o.TailLines != nil {
			errs = append(errs, field.Forbidden(field.NewPath("tailLines"), "may not be given together with a specific `stream`"))
		}
	}
	return errs
}
