package agent

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagegc"
)

// TestConfigz: clients read it as a kubelet's type, which knows each of its fields.
func TestConfigz(t *testing.T) {
	a := &Agent{cfg: Config{
		CRISocket: "/run/x.sock", Address: "127.0.0.1", MaxPods: 7, ServingCert: "/tls.crt", ServingKey: "/tls.key", PodLogsDir: "/logs", ClientCA: "/ca.crt", CgroupRoot: "/mp",
		Images: Images{GCPeriod: time.Minute, GC: imagegc.Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}},
	}}
	client, err := cri.Dial(cri.Config{Socket: filepath.Join(t.TempDir(), "none.sock"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	told := a.configz(client, 10250)
	raw, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	var read kubelet.KubeletConfiguration
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	if read.MaxPods != 7 || read.Port != 10250 || read.Authentication.X509.ClientCAFile != "/ca.crt" || read.Authorization.Mode != "Webhook" || *read.Authentication.Anonymous.Enabled ||
		*read.ImageGCHighThresholdPercent != 85 || read.ImageMinimumGCAge.Duration != 2*time.Minute || read.CgroupDriver != "cgroupfs" || read.NodeLeaseDurationSeconds != 40 {
		t.Errorf("read as %+v", read)
	}
	again, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(again, &fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range told {
		if _, known := fields[name]; !known && value != 0 && value != false {
			t.Errorf("a kubelet's configuration has no field %s", name)
		}
	}
}
