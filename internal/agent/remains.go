package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/host/tree"
)

// remains are what agents before this one have left on the host.
type remains struct {
	runtime holder
	devices DeviceManager // nil: there are none
	files   podFiles
	cgroups podCgroups
	links   *loglinks.Links
	logsDir string
	log     *slog.Logger
}

// holder is the runtime, as far as it tells what it holds.
type holder interface {
	Pods(ctx context.Context) (map[types.UID]podspec.Ref, error)
	Containers(ctx context.Context) ([]cri.Container, error)
}

// podFiles are the directories of pods.
type podFiles interface {
	UIDs() ([]types.UID, error)
	Remove(ctx context.Context, uid types.UID) error
}

// podCgroups are those of pods.
type podCgroups interface {
	UIDs() ([]types.UID, error)
	Remove(uid types.UID) error
}

// knownPods are those that have come to the node meanwhile, too: they begin while this looks around.
type knownPods interface {
	// Pods are those of the API server.
	Pods() []*v1.Pod
	// Has says that the agent is busy with a pod.
	Has(uid types.UID) bool
}

// sort has the devices' ledger compared with what runs, and removes what is of pods that are neither the API server's nor the runtime's, and that no worker has.
func (r *remains) sort(ctx context.Context, known knownPods) error {
	// What is there is listed before anybody is asked whose it is: what a pod makes that comes after that is not in the list.
	dirs, err := r.files.UIDs()
	if err != nil {
		r.log.Error("the pods' directories can't be listed", "error", err)
	}
	cgroups, err := r.cgroups.UIDs()
	if err != nil {
		r.log.Error("the pods' cgroups can't be listed", "error", err)
	}
	pods := known.Pods()
	held, err := r.runtime.Pods(ctx)
	if err != nil {
		return err
	}
	containers, err := r.runtime.Containers(ctx)
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for _, pod := range pods {
		live[string(pod.UID)] = true
	}
	for uid := range held {
		live[string(uid)] = true
	}
	if r.devices != nil {
		if err := r.devices.Reconcile(ctx, live, holdings(pods, containers)); err != nil {
			return fmt.Errorf("compare the devices' ledger with what runs: %w", err)
		}
	}
	gone := func(uid types.UID) bool { return !live[string(uid)] && !known.Has(uid) }
	for _, uid := range dirs {
		if !gone(uid) {
			continue
		}
		err := r.removeLogs(ctx, uid)
		if err == nil {
			err = r.files.Remove(ctx, uid)
		}
		if err != nil {
			r.log.Error("the directories of a pod that is gone were not removed", "podUID", uid, "error", err)
		}
	}
	r.removeCgroups(cgroups, gone)
	running := map[string]bool{}
	for _, c := range containers {
		running[c.ID] = c.Running
	}
	if err := r.links.Sweep(func(id string) bool { return running[id] }); err != nil {
		r.log.Error("links to the logs of containers that are gone were not removed", "error", err)
	}
	return nil
}

// removeCgroups removes those of pods that are gone. One that cannot be removed takes no more than its place.
func (r *remains) removeCgroups(uids []types.UID, gone func(uid types.UID) bool) {
	var errs []error
	for _, uid := range uids {
		if gone(uid) {
			errs = append(errs, r.cgroups.Remove(uid))
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.log.Error("cgroups of pods that are gone were not removed", "error", err)
	}
}

// removeLogs removes the logs of a pod whose name is not known any more.
func (r *remains) removeLogs(ctx context.Context, uid types.UID) error {
	entries, err := os.ReadDir(r.logsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if podspec.IsLogDir(e.Name(), uid) {
			errs = append(errs, tree.Remove(ctx, filepath.Join(r.logsDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// holdings are the containers that may hold devices: a pod that has finished has given its own back, but for what still runs.
func holdings(pods []*v1.Pod, containers []cri.Container) (all []devices.Holding) {
	finished := map[types.UID]bool{}
	for _, pod := range pods {
		finished[pod.UID] = pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	}
	for _, c := range containers {
		if !finished[c.Pod.UID] || c.Running {
			all = append(all, devices.Holding{PodUID: string(c.Pod.UID), PodNamespace: c.Pod.Namespace, PodName: c.Pod.Name, Container: c.Name,
				Record: c.Annotations[devices.Annotation]})
		}
	}
	return all
}
