"""The cloud's side of Paceline: gateway, engines, tenants."""
