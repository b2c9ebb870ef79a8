package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// TestKlog: what libraries say through klog comes with the weight that it has for who runs a node.
func TestKlog(t *testing.T) {
	defer klog.CaptureState().Restore() // it is the process's
	closed := &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}
	for level, want := range map[string][]string{
		"info":  {"level=ERROR msg=broken err=EOF"},
		"debug": {"level=DEBUG msg=\"its own workings\"", "level=ERROR msg=broken err=EOF", fmt.Sprintf("level=DEBUG msg=\"Error on socket receive\" err=%q", closed)},
	} {
		var out strings.Builder
		newLogger(v1alpha1.Logging{Level: level, Format: "text"}, &out)
		klog.InfoS("its own workings")
		klog.V(4).InfoS("a whole request")
		klog.ErrorS(io.EOF, "broken")
		klog.ErrorS(closed, "Error on socket receive")
		klog.Flush()
		var got []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			got = append(got, line)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("at %s:\n%s\nwant\n%s", level, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
