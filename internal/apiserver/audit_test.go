package apiserver_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"monopod.dev/monopod/internal/apiserver"
)

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Request, resources: [{group: "", resources: [secrets]}]}
- {level: None}
`

// TestAudit: what the policy wants is in the file when the server has ended, and nothing else.
func TestAudit(t *testing.T) {
	cfg := newConfig(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Audit = apiserver.Audit{PolicyFile: policy, LogPath: filepath.Join(t.TempDir(), "log", "audit.log"), MaxSize: 1}
	i := start(t, cfg)
	c := i.admin(t).CoreV1()
	if _, err := c.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c"}, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	i.end(t)
	f, err := os.Open(cfg.Audit.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []auditv1.Event
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		events = append(events, e)
	}
	if len(events) != 1 || events[0].Verb != "create" || events[0].ObjectRef.Name != "c" || events[0].User.Username != "kubernetes-admin" ||
		!strings.Contains(string(events[0].RequestObject.Raw), `"k":"dg=="`) {
		t.Errorf("written down: %+v, want the creation of the secret alone", events)
	}
	if info, err := os.Stat(cfg.Audit.LogPath); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log: %v, %v, want mode 0600", info, err)
	}
}
