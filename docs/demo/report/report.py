"""Prints the revenue of each month and the total."""
import csv

total = 0.0
with open("sales.csv") as file:
    for row in csv.DictReader(file):
        revenue = row["revenue"]
        total += revenue
        print(f"{row['month']}  {revenue:>12}")
print(f"total    {total:12.2f}")
