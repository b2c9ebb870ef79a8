package scheme

import (
	"fmt"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// addParameters teaches the scheme to read the options of a pod's streams from a query, as in
// /api/v1/namespaces/default/pods/web/exec?command=ls&command=-l&stdout=true. Names are the JSON names of the fields.
func addParameters(s *runtime.Scheme) error {
	return addAll(s,
		parameters(func(q query, o *corev1.PodLogOptions) {
			q.text("container", &o.Container)
			q.flag("follow", &o.Follow)
			q.flag("previous", &o.Previous)
			q.optionalInt("sinceSeconds", &o.SinceSeconds)
			q.optionalTime("sinceTime", &o.SinceTime)
			q.flag("timestamps", &o.Timestamps)
			q.optionalInt("tailLines", &o.TailLines)
			q.optionalInt("limitBytes", &o.LimitBytes)
			q.flag("insecureSkipTLSVerifyBackend", &o.InsecureSkipTLSVerifyBackend)
			q.optionalText("stream", &o.Stream)
		}),
		parameters(func(q query, o *corev1.PodExecOptions) {
			q.flag("stdin", &o.Stdin)
			q.flag("stdout", &o.Stdout)
			q.flag("stderr", &o.Stderr)
			q.flag("tty", &o.TTY)
			q.text("container", &o.Container)
			o.Command = q.values["command"]
		}),
		parameters(func(q query, o *corev1.PodAttachOptions) {
			q.flag("stdin", &o.Stdin)
			q.flag("stdout", &o.Stdout)
			q.flag("stderr", &o.Stderr)
			q.flag("tty", &o.TTY)
			q.text("container", &o.Container)
		}),
		parameters(func(q query, o *corev1.PodPortForwardOptions) {
			q.ports("ports", &o.Ports)
		}),
	)
}

func addAll(s *runtime.Scheme, hooks ...Hook) error {
	for _, add := range hooks {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// parameters registers read as the conversion from url.Values to *T. The object is cleared first.
func parameters[T any](read func(query, *T)) Hook {
	return func(s *runtime.Scheme) error {
		return s.AddConversionFunc((*url.Values)(nil), (*T)(nil), func(from, to any, _ conversion.Scope) error {
			var fault error
			into := to.(*T)
			*into = *new(T)
			read(query{values: *from.(*url.Values), fault: &fault}, into)
			return fault
		})
	}
}

// query reads typed values from a URL's query. A name that is absent leaves the field as it is; fault is the first
// value that cannot be read.
type query struct {
	values url.Values
	fault  *error
}

func (q query) first(name string) (string, bool) {
	v := q.values[name]
	if len(v) == 0 {
		return "", false
	}
	return v[0], true
}

func (q query) bad(name, value, want string) {
	if *q.fault == nil {
		*q.fault = fmt.Errorf("query parameter %s=%q: must be %s", name, value, want)
	}
}

func (q query) text(name string, into *string) {
	if v, ok := q.first(name); ok {
		*into = v
	}
}

func (q query) optionalText(name string, into **string) {
	if v, ok := q.first(name); ok && v != "" {
		*into = &v
	}
}

// flag reads a boolean as the API has always done (k8s.io/apimachinery, Convert_Slice_string_To_bool): a name without
// a value is true, and whatever is not "false" or "0" is true.
func (q query) flag(name string, into *bool) {
	if v, ok := q.first(name); ok {
		*into = v != "false" && v != "0"
	}
}

func (q query) optionalInt(name string, into **int64) {
	v, ok := q.first(name)
	if !ok || v == "" {
		return
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		q.bad(name, v, "a whole number")
		return
	}
	*into = &n
}

func (q query) optionalTime(name string, into **metav1.Time) {
	v, ok := q.first(name)
	if !ok || v == "" {
		return
	}
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(v); err != nil {
		q.bad(name, v, "a time as in RFC 3339 (2006-01-02T15:04:05Z)")
		return
	}
	*into = &t
}

func (q query) ports(name string, into *[]int32) {
	for _, v := range q.values[name] {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			q.bad(name, v, "a port from 1 to 65535")
			return
		}
		*into = append(*into, int32(n))
	}
}
