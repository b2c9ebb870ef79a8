package agent

import (
	"cmp"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/host/cgroup/place"
)

// configz is the KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that holds, of those fields that this agent has. A field that it has not is left out: its zero
// value would be a statement.
func (a *Agent) configz(client *cri.Client, port int) map[string]any {
	gc := a.cfg.Images.GC
	cfg := map[string]any{
		"enableServer": true, "address": a.cfg.Address, "port": port, "readOnlyPort": 0,
		"tlsCertFile": a.cfg.ServingCert, "tlsPrivateKeyFile": a.cfg.ServingKey,
		"authentication": map[string]any{
			"x509": map[string]any{"clientCAFile": a.cfg.ClientCA}, "webhook": map[string]any{"enabled": true}, "anonymous": map[string]any{"enabled": false},
		},
		"authorization":             map[string]any{"mode": "Webhook"},
		"registerNode":              true,
		"nodeStatusUpdateFrequency": nodestatus.CheckPeriod.String(), "nodeStatusReportFrequency": nodestatus.ReportPeriod.String(),
		"nodeLeaseDurationSeconds": nodestatus.LeaseSeconds,
		"kubeAPIQPS":               requestRate,
		"containerRuntimeEndpoint": "unix://" + a.cfg.CRISocket,
		"cgroupRoot":               a.cfg.CgroupRoot, "cgroupsPerQOS": true, "cgroupDriver": "cgroupfs",
		"maxPods": a.cfg.MaxPods, "podLogsDir": a.cfg.PodLogsDir, "resolvConf": cmp.Or(a.cfg.ResolvConf, act.HostResolvConf), "failSwapOn": false,
	}
	if client.Identity().CgroupDriver == place.Systemd {
		cfg["cgroupDriver"] = "systemd"
	}
	if a.cfg.Images.GCPeriod > 0 {
		cfg["imageGCHighThresholdPercent"], cfg["imageGCLowThresholdPercent"] = gc.High, gc.Low
		cfg["imageMinimumGCAge"], cfg["imageMaximumGCAge"] = gc.MinAge.String(), gc.MaxAge.String()
	}
	return cfg
}
