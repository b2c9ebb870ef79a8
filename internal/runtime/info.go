package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/capability"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/container/life"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// jsonInfo makes the info of a verbose answer: names to JSON.
func jsonInfo(values map[string]any) (map[string]string, error) {
	info := map[string]string{}
	for name, v := range values {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		info[name] = string(raw)
	}
	return info, nil
}

// message is a protobuf message within JSON.
func message(m proto.Message) (json.RawMessage, error) {
	raw, err := protojson.Marshal(m)
	return raw, err
}

// details are what a verbose answer tells beside the status.
type details struct {
	*rooms
	images   life.Images
	executor life.Executor
	cgroups  *cgroup.Host
}

// verboseContainer is the info of a container. The names that other runtimes have too are theirs: sandboxID, pid, config,
// runtimeSpec, snapshotKey, snapshotter, runtimeType.
func (v *details) verboseContainer(ctx context.Context, rec *container.Record) (map[string]string, error) {
	config, err := message(rec.Config())
	if err != nil {
		return nil, err
	}
	info := map[string]any{
		"sandboxID": rec.SandboxID, "config": config, "bootID": rec.BootID, "bundle": v.folders.Bundle(rec.ID), "rootfs": v.folders.RootFS(rec.ID),
		"snapshotter": "overlayfs", "snapshotKey": rec.ID, "writableLayer": v.folders.Upper(rec.ID), "imageID": rec.ImageID,
	}
	// What was made of the security context, beside what the process has in truth (effective).
	confinement, err := ocispec.EffectiveOf(rec.Config(), rec.Resources(), v.host.Spec)
	if err != nil {
		return nil, err
	}
	confinement.SELinux = rec.SELinux
	info["confinement"] = confinement
	if layers, err := v.images.Layers(ctx, rec.ImageID); err == nil { // it may have gone with a disk
		info["imageLayers"] = layers
	}
	spec, err := os.ReadFile(filepath.Join(v.folders.Bundle(rec.ID), "config.json"))
	switch {
	case err == nil && json.Valid(spec):
		info["runtimeSpec"] = json.RawMessage(spec)
	case err != nil && !errors.Is(err, fs.ErrNotExist): // it belongs to the boot in which the container ran
		return nil, err
	}
	if sb, err := v.sandboxes.Get(rec.SandboxID); err == nil {
		info["runtimeType"], info["cgroup"] = sb.Handler, sb.CgroupOf(rec.ID)
		v.addProcess(ctx, info, rec, sb.CgroupOf(rec.ID))
	}
	return jsonInfo(map[string]any{"info": info})
}

// addProcess adds the container's first process, and what it may do and use in truth: a host that is restricted itself may have
// given less than was asked for.
func (v *details) addProcess(ctx context.Context, info map[string]any, rec *container.Record, path string) {
	pid := 0
	if rec.State() != cri.ContainerState_CONTAINER_EXITED {
		pid = v.pidOf(ctx, rec.ID)
	}
	info["pid"] = pid
	if pid == 0 {
		return
	}
	effective := map[string]any{}
	if sec, err := proc.ReadSecurity(pid); err == nil {
		effective["capabilities"] = map[string][]string{
			"bounding": capabilityNames(sec.Bounding), "permitted": capabilityNames(sec.Permitted), "effective": capabilityNames(sec.Effective),
			"inheritable": capabilityNames(sec.Inheritable), "ambient": capabilityNames(sec.Ambient),
		}
		effective["noNewPrivileges"], effective["seccompFilter"], effective["oomScoreAdj"] = sec.NoNewPrivs, sec.Seccomp == 2, sec.OOMScoreAdj
	}
	if limits, err := proc.Limits(pid); err == nil {
		shown := map[string]map[string]any{}
		for name, l := range limits {
			shown[name] = map[string]any{"soft": orUnlimited(l.Soft), "hard": orUnlimited(l.Hard)}
		}
		effective["rlimits"] = shown
	}
	if st, err := v.cgroups.Stats(path, cgroup.Full); err == nil {
		limits := map[string]any{}
		if st.Memory != nil {
			limits["memory"] = orUnlimited(st.Memory.Limit)
		}
		if st.Swap != nil {
			limits["swap"] = orUnlimited(st.Swap.Limit)
		}
		if st.PIDs != nil {
			limits["pids"] = orUnlimited(st.PIDs.Limit)
		}
		if st.Limits != nil {
			limits["cpuShares"], limits["cpuQuota"], limits["cpuPeriod"] = st.Limits.Shares, orUnlimited(st.Limits.Quota), st.Limits.Period
		}
		effective["cgroup"] = limits
	}
	info["effective"] = effective
}

// pidOf is the first process of a container, or a sandbox's init. It is 0 where there is none, or the executor does not say.
func (v *details) pidOf(ctx context.Context, id ids.ContainerID) int {
	ctx, cancel := context.WithTimeout(ctx, executorPatience)
	defer cancel()
	state, err := v.executor.State(ctx, id)
	if err != nil {
		return 0
	}
	return state.PID
}

// verboseSandbox is the info of a sandbox. It is no process: a pid it has only if its containers share a PID namespace.
func (v *details) verboseSandbox(ctx context.Context, rec *sandbox.Record) (map[string]string, error) {
	config, err := message(rec.Config())
	if err != nil {
		return nil, err
	}
	namespaces := map[ns.Kind]string{}
	for _, kind := range []ns.Kind{ns.User, ns.Network, ns.IPC, ns.UTS} {
		if path := v.sandboxFolders.Namespace(rec, kind); path != "" {
			namespaces[kind] = path
		}
	}
	pid := 0
	if rec.Ready() {
		pid = v.pidOf(ctx, rec.InitID())
	}
	return jsonInfo(map[string]any{"info": map[string]any{
		"config": config, "runtimeHandler": rec.Handler, "bootID": rec.BootID, "cgroup": rec.Cgroup, "directory": v.sandboxFolders.Dir(rec.ID), "pid": pid,
		"namespaces": namespaces, "ips": rec.IPs, "selinux": rec.SELinux, "stopped": !rec.StoppedAt.IsZero(), "reclaimed": !rec.ReclaimedAt.IsZero(),
	}})
}

func capabilityNames(set uint64) []string {
	names := []string{}
	for i := range 64 {
		if set&(1<<i) != 0 {
			names = append(names, "CAP_"+strings.ToUpper(capability.Cap(i).String()))
		}
	}
	return names
}

// orUnlimited keeps the greatest number, which JSON's readers round, from being shown as one.
func orUnlimited(n uint64) any {
	if n == proc.Unlimited {
		return "unlimited"
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
