package reach_test

import (
	"strings"
	"testing"
)

// TestResourceMetrics: the agent of the node that is meant is asked, for one path, and nobody else.
func TestResourceMetrics(t *testing.T) {
	r := newRoad(t)
	r.serve("192.0.2.1:10250", &r.pki.Agent)
	r.node("n", 10250, internal("192.0.2.1"))
	r.node("liar", 10250, internal("192.0.2.1"))
	r.node("silent", 10250, internal("192.0.2.8"))
	text, err := r.ResourceMetrics(t.Context(), "n")
	if want := `GET /metrics/resource "" by kube-apiserver-kubelet-client, authorization "", cookie ""`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	for node, want := range map[string]string{"liar": "agent of node liar", "silent": "nobody is at", "none": `nodes "none" not found`} {
		if text, err := r.ResourceMetrics(t.Context(), node); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %s", node, text, err, want)
		}
	}
}
