package act

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/plan"
)

// volumeFiles fail with what they are told to.
type volumeFiles struct{ setup, update error }

func (f volumeFiles) Setup(context.Context, *v1.Pod, string) error  { return f.setup }
func (f volumeFiles) Update(context.Context, *v1.Pod, string) error { return f.update }

// TestVolumesTell: what fails is told in the words that it has, and lasts where an object is not there yet that is asked for; who does not want it any more is told
// nothing.
func TestVolumesTell(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "cm")
	broken := errors.New("it is broken")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context // it is what differs
		verb  plan.Verb
		files volumeFiles
		event string
		lasts bool
	}{
		"made":                     {t.Context(), plan.MountVolume, volumeFiles{update: broken}, "", false},
		"broken":                   {t.Context(), plan.MountVolume, volumeFiles{setup: broken}, "Warning FailedMount it is broken", false},
		"an object is missing":     {t.Context(), plan.MountVolume, volumeFiles{setup: missing}, `Warning FailedMount configmaps "cm" not found`, true},
		"nobody wants it any more": {cancelled, plan.MountVolume, volumeFiles{setup: broken}, "", false},
		"an update":                {t.Context(), plan.UpdateVolume, volumeFiles{setup: broken}, "", false},
		"an update that fails":     {t.Context(), plan.UpdateVolume, volumeFiles{update: missing}, `Warning FailedMount configmaps "cm" not found`, false},
	} {
		events := record.NewFakeRecorder(1)
		tell := &Tell{Events: events}
		acts := New(tell, Parts{Volumes: Volumes{Files: c.files, Tell: tell}})
		err := acts.Do(c.ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, plan.Action{Verb: c.verb, Volume: "v"})
		told := ""
		select {
		case told = <-events.Events:
		default:
		}
		if told != c.event {
			t.Errorf("%s: told is %q", name, told)
		}
		var failed *Failed
		if errors.As(err, &failed); failed != nil && (failed.Reason != plan.ReasonFailedVolumes || failed.Lasts != c.lasts) || (failed == nil) != (name == "made" || name == "an update") {
			t.Errorf("%s: %+v", name, failed)
		}
	}
}
