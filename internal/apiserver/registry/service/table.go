package service

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod.dev/monopod/internal/apiserver/resource"
)

func columns() []resource.Column[*corev1.Service] {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return []resource.Column[*corev1.Service]{
		{Name: "Name"},
		{Name: "Type", Doc: doc["type"], Value: func(s *corev1.Service) any { return string(s.Spec.Type) }},
		{Name: "Cluster-IP", Doc: doc["clusterIP"], Value: clusterIP},
		{Name: "External-IP", Doc: doc["externalIPs"], Value: externalIP},
		{Name: "Port(s)", Doc: doc["ports"], Value: ports},
		{Name: "Age"},
		{Name: "Selector", Doc: doc["selector"], Wide: true, Value: func(s *corev1.Service) any { return labels.FormatLabels(s.Spec.Selector) }},
	}
}

func clusterIP(s *corev1.Service) any {
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs[0]
	}
	return resource.OrNone(s.Spec.ClusterIP)
}

func externalIP(s *corev1.Service) any {
	all := s.Spec.ExternalIPs
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var ingress []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			if i.IP != "" {
				ingress = append(ingress, i.IP)
			} else if i.Hostname != "" {
				ingress = append(ingress, i.Hostname)
			}
		}
		if all = append(ingress, all...); len(all) == 0 {
			return "<pending>"
		}
	}
	return resource.OrNone(strings.Join(all, ","))
}

func ports(s *corev1.Service) any {
	var all []string
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			all = append(all, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			all = append(all, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return resource.OrNone(strings.Join(all, ","))
}
