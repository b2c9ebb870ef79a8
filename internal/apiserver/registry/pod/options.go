package pod

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddOptions registers the options of the subresources with a scheme, with the conversions that read them from a
// request's query.
func AddOptions(scheme *runtime.Scheme) error {
	for _, register := range []func(*runtime.Scheme) error{
		addQueryConversion(func(q *query, o *corev1.PodLogOptions) {
			o.Container = q.string("container")
			o.Follow = q.bool("follow")
			o.Previous = q.bool("previous")
			o.SinceSeconds = q.int64("sinceSeconds")
			o.SinceTime = q.time("sinceTime")
			o.Timestamps = q.bool("timestamps")
			o.TailLines = q.int64("tailLines")
			o.LimitBytes = q.int64("limitBytes")
			o.InsecureSkipTLSVerifyBackend = q.bool("insecureSkipTLSVerifyBackend")
			if s := q.string("stream"); s != "" {
				o.Stream = &s
			}
		}),
		addQueryConversion(func(q *query, o *corev1.PodExecOptions) {
			o.Stdin, o.Stdout, o.Stderr, o.TTY = q.bool("stdin"), q.bool("stdout"), q.bool("stderr"), q.bool("tty")
			o.Container = q.string("container")
			o.Command = q.values["command"]
		}),
		addQueryConversion(func(q *query, o *corev1.PodAttachOptions) {
			o.Stdin, o.Stdout, o.Stderr, o.TTY = q.bool("stdin"), q.bool("stdout"), q.bool("stderr"), q.bool("tty")
			o.Container = q.string("container")
		}),
		addQueryConversion(func(q *query, o *corev1.PodPortForwardOptions) {
			o.Ports = q.ports("ports")
		}),
		addQueryConversion(func(q *query, o *corev1.PodProxyOptions) {
			o.Path = q.string("path")
		}),
	} {
		if err := register(scheme); err != nil {
			return err
		}
	}
	return nil
}

func addQueryConversion[T any](read func(*query, *T)) func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		return scheme.AddConversionFunc((*url.Values)(nil), (*T)(nil),
			func(from, to any, _ conversion.Scope) error {
				q := query{values: *from.(*url.Values)}
				read(&q, to.(*T))
				return q.err
			})
	}
}

// query reads typed values from a request's query; err is the first value that cannot be read. A parameter that is not
// there reads as its type's zero value, one without a value ("?follow") as true where a boolean is wanted.
type query struct {
	values url.Values
	err    error
}

func (q *query) string(name string) string { return q.values.Get(name) }

func (q *query) bool(name string) bool {
	if !q.values.Has(name) {
		return false
	}
	switch value := q.values.Get(name); value {
	case "", "1", "true", "True", "TRUE":
		return true
	case "0", "false", "False", "FALSE":
		return false
	default:
		q.fail(name, value, "true or false")
		return false
	}
}

func (q *query) int64(name string) *int64 {
	if !q.values.Has(name) {
		return nil
	}
	value := q.values.Get(name)
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		q.fail(name, value, "an integer")
		return nil
	}
	return &n
}

func (q *query) time(name string) *metav1.Time {
	value := q.values.Get(name)
	if value == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		q.fail(name, value, "a time as RFC 3339 writes it")
		return nil
	}
	return &metav1.Time{Time: t}
}

func (q *query) ports(name string) []int32 {
	var ports []int32
	for _, value := range q.values[name] {
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			q.fail(name, value, "a port number")
			return nil
		}
		ports = append(ports, int32(port))
	}
	return ports
}

func (q *query) fail(name, value, want string) {
	if q.err == nil {
		q.err = fmt.Errorf("query parameter %s is %q, it must be %s", name, value, want)
	}
}
