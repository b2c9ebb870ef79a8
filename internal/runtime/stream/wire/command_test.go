package wire

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStatusOfARefusal: it is in the words of what was refused; an API server that passes it on says itself that it is an error.
func TestStatusOfARefusal(t *testing.T) {
	how := status(fmt.Errorf("command \"x\": executable file not found: %w", errdefs.ErrInvalidArgument))
	if how.Status != metav1.StatusFailure || how.Reason != metav1.StatusReasonInternalError || how.Message != `command "x": executable file not found` {
		t.Errorf("%+v", how)
	}
}
