package apiserver_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkRequests tells what a request costs, the client's share and TLS included, with as many clients at once as
// there are processors.
func BenchmarkRequests(b *testing.B) {
	cfg := configIn(directory(b))
	i := start(b, cfg)
	defer i.end(b)
	c := i.admin(b).CoreV1().ConfigMaps("default")
	var n atomic.Int64
	b.Run("create", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", n.Add(1))}, Data: map[string]string{"k": "v"}}
				if _, err := c.Create(b.Context(), cm, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("get", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := c.Get(b.Context(), "c-1", metav1.GetOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkServices tells what it costs to make a service, and to make one and delete it, with as many clients at once as there are processors.
func BenchmarkServices(b *testing.B) {
	cfg := configIn(directory(b))
	i := start(b, cfg)
	defer i.end(b)
	c := i.admin(b).CoreV1().Services("default")
	var n atomic.Int64
	create := func(b *testing.B) string {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", n.Add(1))}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := c.Create(b.Context(), s, metav1.CreateOptions{}); err != nil {
			b.Error(err)
		}
		return s.Name
	}
	b.Run("create", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				create(b)
			}
		})
	})
	b.Run("create and delete", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if err := c.Delete(b.Context(), create(b), metav1.DeleteOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
