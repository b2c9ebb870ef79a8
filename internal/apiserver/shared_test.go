package apiserver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/test/apitest"
)

// TestAPIServersShareAnEtcd: what one has stored the others read at once, and no two services have one address or port, whoever made them.
func TestAPIServersShareAnEtcd(t *testing.T) {
	all := apitest.StartShared(t, 2)
	const each = 15
	var made sync.WaitGroup
	for i, api := range all {
		services := api.Client.CoreV1().Services("default")
		made.Go(func() {
			for n := range each {
				s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d-%d", i, n)}, Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: int32(30000 + n)}},
				}}
				_, err := services.Create(t.Context(), s, metav1.CreateOptions{})
				if err != nil && strings.Contains(err.Error(), "provided port is already allocated") {
					continue // the other one was first
				}
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := all[1-i].Client.CoreV1().Services("default").Get(t.Context(), s.Name, metav1.GetOptions{}); err != nil || got.Spec.ClusterIP == "" {
					t.Errorf("%s, read by the other one: %+v, %v", s.Name, got, err)
				}
			}
		})
	}
	made.Wait()
	list, err := all[0].Client.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	for i := range list.Items {
		s := &list.Items[i]
		for _, what := range []string{s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].NodePort)} {
			if what != "0" && owner[what] != "" {
				t.Errorf("%s and %s have %s", s.Name, owner[what], what)
			}
			owner[what] = s.Name
		}
	}
	if len(list.Items) != each+1 { // and kubernetes
		t.Errorf("%d services, want %d", len(list.Items), each+1)
	}
	// What one has given back the other gives out again.
	if err := all[0].Client.CoreV1().Services("default").Delete(t.Context(), owner["30000"], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "again"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30000}},
	}}
	if _, err := all[1].Client.CoreV1().Services("default").Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestOthersKeys: who has another authority than those who share an etcd is told what to do.
func TestOthersKeys(t *testing.T) {
	url := apitest.Etcd(t)
	for i, want := range []string{"", "copy ca.crt, ca.key, sa-* and encryption.yaml"} {
		dir, err := os.MkdirTemp("", "o")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		s, err := apiserver.New(t.Context(), apiserver.Config{
			DataDir: filepath.Join(dir, "d"), RunDir: filepath.Join(dir, "r"), BindAddress: "127.0.0.1", NodeName: fmt.Sprint("n", i),
			Etcd: etcd.RemoteConfig{Servers: []string{url}},
		})
		if err == nil {
			err = s.Close()
		}
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), filepath.Join(dir, "d", "pki"))) {
			t.Errorf("number %d: %v, want %q", i, err, want)
		}
	}
}
